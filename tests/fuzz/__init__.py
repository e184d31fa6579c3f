"""A fuzzer of whole servers: random sessions in a process of their own, rules that always hold.

| module | contains |
|---|---|
| `script.py`, `recordings.py` | the data: a run has sessions, a session has steps |
| `client_events.py`, `broken_events.py`, `http_requests.py` | the grammar: what a client may send |
| `generate.py` | a seed → a run |
| `players.py`, `player_http.py`, `player_webrtc.py`, `record.py` | play a session, record it |
| `invariants.py`, `resources.py` | what must hold of a session, and of the server afterwards |
| `server.py`, `runs.py` | starts a server; plays a run and collects its failures |
| `shrink.py`, `report.py`, `plot.py` | the shortest run that fails, as a test; figures |
| `soak.py` | `make soak` |
"""
