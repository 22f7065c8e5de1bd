"""bitrank in other people's frameworks: LangChain, LlamaIndex, Haystack and MTEB, one module each. All are extras."""
