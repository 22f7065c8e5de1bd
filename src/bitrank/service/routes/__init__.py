"""The routes of the API: each checks its input, makes one call of the service, and returns a schema."""
