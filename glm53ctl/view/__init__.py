"""What an owner looks at: one value for the page, its stream and the metrics."""
