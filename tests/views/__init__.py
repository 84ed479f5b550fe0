"""Views under locks, on a site that each test puts together."""
