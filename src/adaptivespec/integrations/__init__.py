"""Plugins for other engines and tools."""
