"""What `spritz eff` is made of: `measure` (records -> what was asked and used), `advice` (what to ask for next time),
`text` (both in words). Pure but for `fetch`, which asks slurmdbd and the controller."""
