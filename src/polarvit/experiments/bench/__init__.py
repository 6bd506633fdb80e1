"""Speed side by side in one run, ratios first."""
