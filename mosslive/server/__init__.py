"""The server: the Realtime protocol and HTTP endpoints in front of live conversations."""
