"""Realtime sessions over WebRTC: Opus both ways, events over a data channel."""
