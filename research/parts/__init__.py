"""What benchmarks share: options, pages, scenarios, and larger studies that one of them runs."""
