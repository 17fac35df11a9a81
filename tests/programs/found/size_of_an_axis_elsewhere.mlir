// Without fusion, a kernel asks for the size of an axis that none of its arrays has.

func.func @f(%X: tensor<?x?xf32, #diagram.array<[t, i]>>) -> tensor<?xf32, #diagram.array<[t]>>
    attributes {sizes = #diagram.sizes<t = 5, i = 33>} {
  %m = diagram.apply @mean(%X) over [i] : (tensor<?x?xf32, #diagram.array<[t, i]>>) -> tensor<?xf32, #diagram.array<[t]>>
  func.return %m : tensor<?xf32, #diagram.array<[t]>>
}
