"""The derivatives of loops; `sciml.adjoints` exports them."""
