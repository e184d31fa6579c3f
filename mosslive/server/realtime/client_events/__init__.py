"""Handlers of the client events of the Realtime API: one file per event family.

Each file has a table `HANDLERS` from event types to functions; `handlers.py` joins the tables.
"""
