"""What a determined attack broke, each by its number in `docs/security-model.md`: it must not come back."""
