"""Learning dynamics: what each step does to everything else (RBP §3–5)."""
