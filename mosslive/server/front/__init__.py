"""Front processes: sockets, TLS, HTTP and WebSocket framing outside of the process of the model.

The server's own process, the core, accepts connections and passes each to a front process. A front
forwards every ASGI message to the core, where the application runs as if it had the socket.
"""
