"""What tests share: real servers as processes, and prompts whose answers are known."""
