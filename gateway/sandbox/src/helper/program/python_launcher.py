def run():
    import builtins
    import sys

    builtins.exit = builtins.quit = sys.exit

    path = sys.argv[1]

    def show(kind, error, trace):
        # A traceback begins at the program, as it does without this.
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        sys.__excepthook__(kind, error.with_traceback(trace), trace)

    sys.excepthook = show
    sys.argv = [path]
    if sys.path and not sys.path[0]:
        del sys.path[0]
    with open(path, "rb") as file:
        source = file.read()
    names = sys.modules["__main__"].__dict__
    del names["run"]
    names["__file__"] = path
    # PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, path, "exec", 0x2000, dont_inherit=True)
    # CO_COROUTINE: something is awaited outside of every function.
    if code.co_flags & 0x80:
        import asyncio

        asyncio.run(eval(code, names))
    else:
        exec(code, names)


run()
