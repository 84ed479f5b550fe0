"""`make dashboard`: the shop with live traffic over every store that runs here."""
