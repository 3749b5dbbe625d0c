"""A gallery as a retriever of LangChain, LlamaIndex and Haystack, one small module for each.

They search with the model, or the models, that the migration says, before, during and after it.
"""
