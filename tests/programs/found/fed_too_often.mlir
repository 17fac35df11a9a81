// Each sum of a cascade asks for the axis again, and the first is of the same array in another order: made again where it is
// read, the order costs nothing, and only the product is saved.
func.func @f(%in0: tensor<?x?x?xf32, #diagram.array<[b, e, c]>>, %in1: tensor<?x?x?xf32, #diagram.array<[e, c, d]>>) -> tensor<?x?x?xf32, #diagram.array<[b, e, c]>> attributes {sizes = #diagram.sizes<b = 3, c = 5, d = 17, e = 2>} {
  %v0 = diagram.contract %in1, %in0 over [c] accumulate f32 as tf32 : tensor<?x?x?xf32, #diagram.array<[e, c, d]>>, tensor<?x?x?xf32, #diagram.array<[b, e, c]>> -> tensor<?x?x?xf32, #diagram.array<[e, d, b]>>
  %v2 = diagram.map (%a0 = %v0 : tensor<?x?x?xf32, #diagram.array<[e, d, b]>>) -> tensor<?x?x?xf32, #diagram.array<[d, b, e]>> {
    diagram.yield %a0 : f32
  }
  %v3 = diagram.reduce max %v2 over [d] : tensor<?x?x?xf32, #diagram.array<[d, b, e]>> -> tensor<?x?xf32, #diagram.array<[b, e]>>
  %v4 = diagram.map (%a = %v2 : tensor<?x?x?xf32, #diagram.array<[d, b, e]>>, %r = %v3 : tensor<?x?xf32, #diagram.array<[b, e]>>) -> tensor<?x?x?xf32, #diagram.array<[d, b, e]>> {
    %t = arith.subf %a, %r : f32
    %y = math.exp %t : f32
    diagram.yield %y : f32
  }
  %v5 = diagram.reduce add %v4 over [d] : tensor<?x?x?xf32, #diagram.array<[d, b, e]>> -> tensor<?x?xf32, #diagram.array<[b, e]>>
  %v6 = diagram.map (%a = %v2 : tensor<?x?x?xf32, #diagram.array<[d, b, e]>>, %r = %v5 : tensor<?x?xf32, #diagram.array<[b, e]>>) -> tensor<?x?x?xf32, #diagram.array<[d, b, e]>> {
    %t = arith.subf %a, %r : f32
    diagram.yield %t : f32
  }
  %v7 = diagram.reduce max %v6 over [d] : tensor<?x?x?xf32, #diagram.array<[d, b, e]>> -> tensor<?x?xf32, #diagram.array<[b, e]>>
  %v8 = diagram.map (%r = %v7 : tensor<?x?xf32, #diagram.array<[b, e]>>) -> tensor<?x?x?xf32, #diagram.array<[d, b, e]>> {
    diagram.yield %r : f32
  }
  %v9 = diagram.contract %v8, %in1 over [d] accumulate f32 : tensor<?x?x?xf32, #diagram.array<[d, b, e]>>, tensor<?x?x?xf32, #diagram.array<[e, c, d]>> -> tensor<?x?x?xf32, #diagram.array<[b, e, c]>>
  func.return %v9 : tensor<?x?x?xf32, #diagram.array<[b, e, c]>>
}
