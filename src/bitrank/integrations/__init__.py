"""bitrank in other people's frameworks, one module per framework: LangChain, Haystack and MTEB. All are extras."""
