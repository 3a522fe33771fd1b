"""sprio's columns and listing."""
