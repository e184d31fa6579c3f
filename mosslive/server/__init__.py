"""The network: the Realtime protocol and plain HTTP around live conversations."""
