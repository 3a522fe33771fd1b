"""What `spritz eff` is made of: `measure` (records -> what was asked and used), `advice` (what to ask for next time),
`told` (both in words). Pure but for `asked`, which asks slurmdbd and the controller."""
