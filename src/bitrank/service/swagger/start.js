// A separate file, since the Content-Security-Policy forbids inline scripts.
SwaggerUIBundle({ url: "/openapi.json", dom_id: "#api", validatorUrl: null });
