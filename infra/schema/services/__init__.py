"""The stack file's `services[]`: a service, its health, its scaling, its workers on premises."""
