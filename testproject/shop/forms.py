"""What a buyer may send."""

from __future__ import annotations

from django import forms


class BuyForm(forms.Form):
    """Ask how many, and for whom."""

    quantity = forms.IntegerField(min_value=1, max_value=10, required=False)
    buyer = forms.CharField(max_length=100, required=False)

    def clean_quantity(self) -> int:
        """Take one when the buyer named no number."""
        return self.cleaned_data["quantity"] or 1

    def clean_buyer(self) -> str:
        """Take a guest when the buyer gave no name."""
        return self.cleaned_data["buyer"] or "Guest"


class RestockForm(forms.Form):
    """How many pieces come into the stock."""

    pieces = forms.IntegerField(min_value=1, max_value=10_000)
