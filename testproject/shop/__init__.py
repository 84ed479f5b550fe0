"""The shop: products, orders, and a flash sale that must not oversell."""
