"""What an agent is: the file format, its loader and its lints."""
