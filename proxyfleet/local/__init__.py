"""What makes one machine a whole deployment: embedded servers, a supervisor, a probe target. No Django in here."""
