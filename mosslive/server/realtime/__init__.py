"""The Realtime protocol: one session object for every transport, one file per event family."""
