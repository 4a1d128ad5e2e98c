"""An interruption drill: spot instances are taken on purpose, and what comes of it is written down."""
