"""A leased proxy in the HTTP client of your choice. Each module needs the library that it is named for."""
