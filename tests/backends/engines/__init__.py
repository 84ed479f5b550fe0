"""Database engines that Django does not have, on servers that it has."""
