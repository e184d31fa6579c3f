"""The Realtime API: one session object for every transport.

`client_events` has the handlers and `server_events` the builders, one file per event family.
"""
