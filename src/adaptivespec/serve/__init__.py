"""The server: OpenAI's interface over one embedded engine that several requests share."""
