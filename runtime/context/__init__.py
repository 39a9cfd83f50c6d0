"""The window: regions, budgets, eviction, assembly, attribution. Pure and synchronous."""
