"""A small shop that uses django-distlock: an example, a demo and a place to try things."""
