"""What a person does to the homes of this host by a command; the agent does the same by itself."""
