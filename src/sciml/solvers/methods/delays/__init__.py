"""Methods for equations with delays."""
