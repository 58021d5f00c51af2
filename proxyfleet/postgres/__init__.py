"""Django's PostgreSQL backend, which finds out more cheaply whether the server is still there."""
