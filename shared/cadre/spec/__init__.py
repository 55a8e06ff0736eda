"""An agent's specification and its YAML file: fields, approval policies, answer schema, prices."""
