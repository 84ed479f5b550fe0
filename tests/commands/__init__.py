"""The commands of the app, and an app whose own commands run alone."""
