"""The command line: one module a group of commands; each parses, calls, prints, and maps errors to exit status."""
