"""The pinned worker: sends prompts to one engine, takes the dumps whose content matches, publishes them."""
