"""Taking one kind of thing each: sessions, files, repos, projects of the store."""
