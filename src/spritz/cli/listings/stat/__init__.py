"""`sstat` after its options are read: `running_steps` asks for running steps and what they have used."""
