"""The native CPU engine: C++ compiled on first use, reached through ctypes."""
