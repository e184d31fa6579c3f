"""Builders of the server events of the Realtime API: one file per event family.

Each event has one function, which takes typed fields and returns the JSON object in GA names.
`RealtimeSession.send` adds the `event_id` and translates to beta names where a client asked for
them. Pure functions: they know no session and run on every thread.
"""
