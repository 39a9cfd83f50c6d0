"""Model APIs: one request in, one stream that ends in one reply out. It knows nothing of runs."""
